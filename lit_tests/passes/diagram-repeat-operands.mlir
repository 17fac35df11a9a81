// RUN: xdsl-opt -p 'set-machine{name=h100},diagram-repeat-operands' %s | filecheck %s
// RUN: xdsl-opt -p 'diagram-repeat-operands{axes=i,t}' %s | filecheck %s --check-prefix ASKED
// RUN: xdsl-opt -p 'set-machine{name=h100},diagram-repeat-operands{axes=none}' %s | filecheck %s --check-prefix NONE

!X = tensor<?x1024xf16, #diagram.array<[t, k]>>
!Y = tensor<?x2048xf16, #diagram.array<[t, n]>>
!Yi = tensor<8x?x2048xf32, #diagram.array<[i, t, n]>>
!Yh = tensor<8x?x2048xf16, #diagram.array<[i, t, n]>>
!W = tensor<8x1024x2048xf32, #diagram.array<[i, k, n]>>
!ends = tensor<8xi32, #diagram.array<[i]>>

// What is converted there and back on the way to the product is read as it was.
// CHECK-LABEL: func.func @weights
// CHECK-SAME:    #hierarchy.step<"diagram-repeat-operands", "%Y for each i of %W", "a condition keeps what is read again as it keeps what is repeated", "estimated
// CHECK:         %Y_again = diagram.read %Y at "t, n" padded : {{.*}} -> tensor<?x8x2048xf16, #diagram.array<[t, i, n]>>
// CHECK-NEXT:    %Q_rows = diagram.where %Y_again if "first[i] <= t and t < end[i]" with (first = %first
// CHECK-NEXT:    %W = diagram.contract %Q_rows, %X over [t] accumulate f32
// CHECK-NEXT:    func.return %W
// ASKED-LABEL: func.func @weights
// ASKED:         diagram.read %Y at "t, n" padded
// NONE-LABEL: func.func @weights
// NONE-NOT:     diagram.read
func.func @weights(%X: !X, %Y: !Y, %first: !ends, %end: !ends) -> !W attributes {sizes = #diagram.sizes<t = 4096>} {
  %P = diagram.map (%y = %Y : !Y) -> !Yi {
    %0 = arith.extf %y : f16 to f32
    diagram.yield %0 : f32
  }
  %Q = diagram.where %P if "first[i] <= t and t < end[i]" with (first = %first : !ends, end = %end : !ends) : !Yi
  %Qh = diagram.cast %Q : !Yi -> !Yh
  %W = diagram.contract %Qh, %X over [t] accumulate f32 : !Yh, !X -> !W
  func.return %W : !W
}

// One end says no range of rows.
// CHECK-LABEL: func.func @ends_alone
// CHECK-NOT:     diagram.read
// ASKED-LABEL: func.func @ends_alone
// ASKED-NOT:     diagram.read
func.func @ends_alone(%X: !X, %Y: !Y, %end: !ends) -> !W attributes {sizes = #diagram.sizes<t = 4096>} {
  %P = diagram.map (%y = %Y : !Y) -> !Yh {
    diagram.yield %y : f16
  }
  %Q = diagram.where %P if "t < end[i]" with (end = %end : !ends) : !Yh
  %W = diagram.contract %Q, %X over [t] accumulate f32 : !Yh, !X -> !W
  func.return %W : !W
}
