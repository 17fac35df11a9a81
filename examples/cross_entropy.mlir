// Softmax cross-entropy of logits against given probabilities: for each row, lse(z) sum(y) - sum(y z), the cross-
// entropy between y and softmax(z). One pass over the classes.
//
//   treadle run examples/cross_entropy.mlir --size t=7 --size c=50257

!Z = tensor<?x?xf32, #diagram.array<[t, c]>>
!r = tensor<?xf32, #diagram.array<[t]>>

func.func @cross_entropy(%Z: !Z, %Y: !Z) -> !r
    attributes {sizes = #diagram.sizes<t = 50, c = 1000>} {
  %logs = diagram.apply @log_softmax(%Z) over [c] : (!Z) -> !Z
  %terms = diagram.map (%y = %Y : !Z, %l = %logs : !Z) -> !Z {
    %negative = arith.negf %l : f32
    %term = arith.mulf %y, %negative : f32
    diagram.yield %term : f32
  }
  %loss = diagram.reduce add %terms over [c] : !Z -> !r
  func.return %loss : !r
}
