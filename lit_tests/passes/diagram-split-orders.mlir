// RUN: xdsl-opt -p 'set-machine{name=h100},diagram-split-orders{lengths=256}' %s | filecheck %s
// RUN: xdsl-opt -p 'set-machine{name=h100},diagram-split-orders{lengths=256}' %s | xdsl-opt | filecheck %s
// RUN: xdsl-opt -p 'set-machine{name=h100},diagram-split-orders' %s | filecheck %s --check-prefix PAYS
// RUN: xdsl-opt -p 'set-machine{name=h100},diagram-split-orders{lengths=0}' %s | filecheck %s --check-prefix NONE
// RUN: xdsl-opt --verify-diagnostics -p 'set-machine{name=h100},diagram-split-orders{lengths=2100}' %s | filecheck %s --check-prefix WRONG
// RUN: xdsl-opt -p 'set-machine{name=h100},diagram-split-orders{lengths=100}' %s | filecheck %s --check-prefix LAST

// WRONG: there are no two parts of 2100: 'x' of %first has 4096 elements

// Of 41 parts of 100 the last one has 96.

// LAST-LABEL: func.func @f
// LAST:       %[[PARTS:.*]] = diagram.read %S at "q, 100 * x_part + x_in" padded : {{.*}} -> tensor<?x41x100xf32, #diagram.array<[q, x_part, x_in]>>
// LAST:       %[[THERE:.*]] = diagram.where %[[PARTS]] if "100 * x_part + x_in < 4096"
// LAST:       diagram.reduce max %[[THERE]] over [x_in]
// LAST:       diagram.collapse %{{.*}} [x_part, x_rank] as x_found : {{.*}} -> tensor<?x82xf32, #diagram.array<[q, x_found]>>

// NONE-NOT: diagram.read
// NONE-NOT: diagram.collapse

// The first two of each part, what places these have in all, and the first two of them.

// CHECK-LABEL: func.func @f
// CHECK-SAME:  #hierarchy.step<"diagram-split-orders", "%first along x in parts of 256", "the first of an order are among the first of its parts", "asked for">
// CHECK:       %[[PARTS:.*]] = diagram.read %S at "q, 256 * x_part + x_in"
// CHECK:       %[[FIRST:.*]] = diagram.reduce max %[[PARTS]] over [x_in]
// CHECK:       %[[PLACE:.*]] = diagram.reduce min %{{.*}} over [x_in]
// CHECK:       %[[SECOND:.*]] = diagram.reduce max %{{.*}} over [x_in]
// CHECK:       %[[SECOND_PLACE:.*]] = diagram.reduce min %{{.*}} over [x_in]
// CHECK:       %[[OF_ALL:.*]] = diagram.map (%{{.*}} = %[[PLACE]] : {{.*}}, %{{.*}} = %{{.*}} : tensor<16xi32, #diagram.array<[x_part]>>)
// CHECK:         arith.constant 256 : i32
// CHECK:       %[[BESIDE:.*]] = diagram.map (%{{.*}} = %[[FIRST]] : {{.*}}, %{{.*}} = %[[SECOND]] : {{.*}}, %{{.*}} = %{{.*}} : tensor<2xi32, #diagram.array<[x_rank]>>)
// CHECK:       %[[FOUND:.*]] = diagram.collapse %[[BESIDE]] [x_part, x_rank] as x_found
// CHECK:       %[[PLACES:.*]] = diagram.collapse %{{.*}} [x_part, x_rank] as x_found
// CHECK:       %first = diagram.reduce max %[[FOUND]] over [x_found]
// CHECK:       diagram.map (%{{.*}} = %[[FOUND]] : {{.*}}, %{{.*}} = %first : {{.*}}, %{{.*}} = %[[PLACES]] : {{.*}})
// CHECK:       %place = diagram.reduce min %{{.*}} over [x_found]
// CHECK:       func.return %first, %place, %second, %second_place

// Held whole by a warp, it is not split, as the model says.

// PAYS-LABEL:  func.func @f
// PAYS-SAME:   #hierarchy.step<"decline diagram-split-orders", "%first along x", "the first of an order are among the first of its parts", "in parts of 1024 estimated
// PAYS-NOT:    x_part

!S = tensor<?x4096xf32, #diagram.array<[q, x]>>
!P = tensor<?x4096xi32, #diagram.array<[q, x]>>
!r = tensor<?xf32, #diagram.array<[q]>>
!p = tensor<?xi32, #diagram.array<[q]>>
!x = tensor<4096xi32, #diagram.array<[x]>>
func.func @f(%S: !S) -> (!r, !p, !r, !p) {
  %at = diagram.index -> !x
  %first = diagram.reduce max %S over [x] : !S -> !r
  %is_first = diagram.map (%s = %S : !S, %m = %first : !r, %i = %at : !x) -> !P {
    %nowhere = arith.constant 2147483647 : i32
    %is = arith.cmpf oeq, %s, %m : f32
    %p = arith.select %is, %i, %nowhere : i32
    diagram.yield %p : i32
  }
  %place = diagram.reduce min %is_first over [x] : !P -> !p
  %left = diagram.map (%s = %S : !S, %i = %at : !x, %taken = %place : !p) -> !S {
    %none = arith.constant 0xFF800000 : f32
    %is = arith.cmpi eq, %i, %taken : i32
    %l = arith.select %is, %none, %s : f32
    diagram.yield %l : f32
  }
  %second = diagram.reduce max %left over [x] : !S -> !r
  %is_second = diagram.map (%s = %left : !S, %m = %second : !r, %i = %at : !x, %taken = %place : !p) -> !P {
    %nowhere = arith.constant 2147483647 : i32
    %is = arith.cmpf oeq, %s, %m : f32
    %is_left = arith.cmpi ne, %i, %taken : i32
    %both = arith.andi %is, %is_left : i1
    %p = arith.select %both, %i, %nowhere : i32
    diagram.yield %p : i32
  }
  %second_place = diagram.reduce min %is_second over [x] : !P -> !p
  func.return %first, %place, %second, %second_place : !r, !p, !r, !p
}
