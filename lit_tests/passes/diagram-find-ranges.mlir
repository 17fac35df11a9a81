// RUN: xdsl-opt -p 'diagram-find-ranges{axes=x}' %s | filecheck %s
// RUN: xdsl-opt -p 'diagram-find-ranges{axes=x}' %s | xdsl-opt | filecheck %s
// RUN: xdsl-opt -p 'set-machine{name=h100},diagram-find-ranges' %s | filecheck %s --check-prefix SHORT
// RUN: xdsl-opt --verify-diagnostics -p 'diagram-find-ranges{axes=q}' %s | filecheck %s --check-prefix ROWS

!S = tensor<2x?x?xf32, #diagram.array<[h, q, x]>>
!m = tensor<2x?xf32, #diagram.array<[h, q]>>
!q = tensor<?xi32, #diagram.array<[q]>>
!x = tensor<?xi32, #diagram.array<[x]>>

// What `x <= q` leaves stays as it is; what data leave is found for each row, once for all heads.

// CHECK-LABEL: func.func @packed
// CHECK-SAME:    #hierarchy.step<"diagram-find-ranges", "'x <= q and of_x[x] == of_q[q]' of %W along x", "a condition holds between the first and the last position at which it does", "asked for">
// CHECK-NEXT:  %at_x = diagram.index -> tensor<?xi32, #diagram.array<[x]>>
// CHECK-NEXT:  %places = diagram.map (%{{.*}} = %at_x : tensor<?xi32, #diagram.array<[x]>>) -> tensor<?x?xi32, #diagram.array<[q, x]>> {
// CHECK:       %found = diagram.where %places if "of_x[x] == of_q[q]" with (of_x = %of_x : tensor<?xi32, #diagram.array<[x]>>, of_q = %of_q : tensor<?xi32, #diagram.array<[q]>>)
// CHECK-NEXT:  %ones = diagram.fill 1 : i32 -> tensor<?x?xi32, #diagram.array<[q, x]>>
// CHECK-NEXT:  %found_b = diagram.where %ones if "of_x[x] == of_q[q]" with (of_x = %of_x : tensor<?xi32, #diagram.array<[x]>>, of_q = %of_q : tensor<?xi32, #diagram.array<[q]>>)
// CHECK-NEXT:  %least = diagram.reduce min %found over [x] : tensor<?x?xi32, #diagram.array<[q, x]>> -> tensor<?xi32, #diagram.array<[q]>>
// CHECK-NEXT:  %most = diagram.reduce max %found over [x]
// CHECK-NEXT:  %count = diagram.reduce add %found_b over [x]
// CHECK-NEXT:  %end = diagram.map (%{{.*}} = %most : tensor<?xi32, #diagram.array<[q]>>)
// CHECK:       %first = diagram.map (%{{.*}} = %least : tensor<?xi32, #diagram.array<[q]>>, %{{.*}} = %end : tensor<?xi32, #diagram.array<[q]>>)
// CHECK:       %whole = diagram.map (%{{.*}} = %first : tensor<?xi32, #diagram.array<[q]>>, %{{.*}} = %count : tensor<?xi32, #diagram.array<[q]>>, %{{.*}} = %end : tensor<?xi32, #diagram.array<[q]>>)
// CHECK:       %W = diagram.where %S if "x <= q and of_x[x] == of_q[q]" within "x <= q and (first[q] <= x and x + 1 <= end[q])" throughout "x <= q and (first[q] <= x and x + 1 <= whole[q])" with (of_x = %of_x : tensor<?xi32, #diagram.array<[x]>>, of_q = %of_q : tensor<?xi32, #diagram.array<[q]>>, first = %first : tensor<?xi32, #diagram.array<[q]>>, end = %end : tensor<?xi32, #diagram.array<[q]>>, whole = %whole : tensor<?xi32, #diagram.array<[q]>>)
// CHECK-NEXT:  %m = diagram.reduce max %W over [x]

// SHORT-LABEL: func.func @packed
// SHORT-SAME:    #hierarchy.step<"decline diagram-find-ranges", "ranges along x", "a tenth must be saved", "no kernel of their own would find them, but every group all the same">
// SHORT:         %W = diagram.where %S if "x <= q and of_x[x] == of_q[q]" with (of_x = %of_x : tensor<?xi32, #diagram.array<[x]>>, of_q = %of_q

// ROWS: no condition compares data along axis 'q', which is summed, with what differs from row to row: there are some along x

func.func @packed(%S: !S, %of_q: !q, %of_x: !x) -> !m attributes {sizes = #diagram.sizes<q = 100, x = 100>} {
  %W = diagram.where %S if "x <= q and of_x[x] == of_q[q]" with (of_x = %of_x : !x, of_q = %of_q : !q) : !S
  %m = diagram.reduce max %W over [x] : !S -> !m
  func.return %m : !m
}
