// RUN: xdsl-opt -p 'fusion,streaming,tiling' %s | filecheck %s
// RUN: xdsl-opt -p 'fusion,streaming,tiling{axis=n}' %s | filecheck %s --check-prefix ONE
// RUN: xdsl-opt -p 'fusion,streaming,tiling{repeated=h}' %s | filecheck %s --check-prefix CUT

!A = tensor<?x?x64xf16, #diagram.array<[b, m, k]>>
!B = tensor<64x?xf16, #diagram.array<[k, n]>>
!C = tensor<?x?x?xf32, #diagram.array<[b, n, m]>>
!U = tensor<?x16xf32, #diagram.array<[n, g]>>
!D = tensor<?x?x16xf32, #diagram.array<[b, m, g]>>
!t = tensor<4xf32, #diagram.array<[h]>>
!H = tensor<?x4x?x?xf32, #diagram.array<[b, h, n, m]>>

// Groups stand in the order of memory of the result.
// CHECK-LABEL: func.func @product
// CHECK-SAME:  #hierarchy.step<"tiling", "b of @product", "group partition: weaved over it", "">
// CHECK:       schedule #hierarchy.schedule<group = [b = ?, n = ?, m = ?], stream = [k = ?]>
// ONE-LABEL:   func.func @product
// ONE:         schedule #hierarchy.schedule<group = [n = ?], stream = [k = ?]>
func.func @product(%A: !A, %B: !B) -> !C {
  %C = diagram.contract %A, %B over [k] accumulate f32 : !A, !B -> !C
  func.return %C : !C
}

// n is reduced by the second product, and g is not in the first one: every group of it would compute that again.
// CHECK-LABEL: func.func @chain
// CHECK-SAME:  #hierarchy.step<"tiling", "k of @chain", "held whole", "axis 'k' is reduced by %C">
// CHECK-SAME:  #hierarchy.step<"tiling", "g of @chain", "held whole", "axis 'g' is not in the product %C, which every group of it would repeat">
// CHECK:       schedule #hierarchy.schedule<group = [b = ?, m = ?], stream = [n = ?], whole = [k = 64, g = 16]>
func.func @chain(%A: !A, %B: !B, %U: !U) -> !D {
  %C = diagram.contract %A, %B over [k] accumulate f32 : !A, !B -> !C
  %D = diagram.contract %C, %U over [n] accumulate f32 : !C, !U -> !D
  func.return %D : !D
}

// A map spreads the product along h, which it lacks: groups hold all of h, or make the product again, as is faster.
// CHECK-LABEL: func.func @spread
// CHECK-SAME:  #hierarchy.step<"tiling", "h of @spread", "held whole", "axis 'h' is not in the product %C, which every group of it would repeat; estimated {{.*}} us held whole, {{.*}} us cut">
// CHECK:       schedule #hierarchy.schedule<group = [b = ?, n = ?, m = ?], stream = [k = ?], whole = [h = 4]>
// CUT-LABEL:   func.func @spread
// CUT-SAME:    #hierarchy.step<"tiling", "h of @spread", "group partition: weaved over it", "each group repeats %C, which lacks it: asked for">
// CUT:         schedule #hierarchy.schedule<group = [b = ?, h = ?, n = ?, m = ?], stream = [k = ?]>
func.func @spread(%A: !A, %B: !B, %t: !t) -> !H {
  %C = diagram.contract %A, %B over [k] accumulate f32 : !A, !B -> !C
  %H = diagram.map (%c = %C : !C, %a = %t : !t) -> !H {
    %y = arith.mulf %c, %a : f32
    diagram.yield %y : f32
  }
  func.return %H : !H
}
