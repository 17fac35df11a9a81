// Kullback-Leibler divergence of softmax(b) from softmax(a), the loss of distillation: for each row,
// sum softmax(a) (log softmax(a) - log softmax(b)). One pass over the classes.
//
//   treadle run examples/kl_divergence.mlir --size t=7 --size c=50257

!A = tensor<?x?xf32, #diagram.array<[t, c]>>
!r = tensor<?xf32, #diagram.array<[t]>>

func.func @kl_divergence(%A: !A, %B: !A) -> !r
    attributes {sizes = #diagram.sizes<t = 50, c = 1000>} {
  %p = diagram.apply @log_softmax(%A) over [c] : (!A) -> !A
  %q = diagram.apply @log_softmax(%B) over [c] : (!A) -> !A
  %terms = diagram.map (%a = %p : !A, %b = %q : !A) -> !A {
    %share = math.exp %a : f32
    %more = arith.subf %a, %b : f32
    %term = arith.mulf %share, %more : f32
    diagram.yield %term : f32
  }
  %loss = diagram.reduce add %terms over [c] : !A -> !r
  func.return %loss : !r
}
