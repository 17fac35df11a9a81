// Softmax against a bound that is given for each row in place of its maximum: exact as long as no score is far above
// it. No maximum is taken, so numerator and denominator are plain sums and nothing is repaired.
//
//   treadle run examples/softmax_bounded.mlir --size row=7 --size x=5000

!A = tensor<?x?xf32, #diagram.array<[row, x]>>
!r = tensor<?xf32, #diagram.array<[row]>>

func.func @softmax_bounded(%A: !A, %bound: !r) -> !A
    attributes {sizes = #diagram.sizes<row = 77, x = 1000>} {
  %E = diagram.map (%a = %A : !A, %b = %bound : !r) -> !A {
    %shifted = arith.subf %a, %b : f32
    %exp = math.exp %shifted : f32
    diagram.yield %exp : f32
  }
  %sum = diagram.reduce add %E over [x] : !A -> !r
  %P = diagram.map (%e = %E : !A, %l = %sum : !r) -> !A {
    %share = arith.divf %e, %l : f32
    diagram.yield %share : f32
  }
  func.return %P : !A
}
