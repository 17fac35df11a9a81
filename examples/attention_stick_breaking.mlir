// Stick-breaking attention (S. Tan et al., "Scaling Stick-Breaking Attention", arXiv 2410.17980): no softmax. Each query
// has a stick, of which keys break off a share of what is left, sigmoid(z), the latest key first. What is left for x are
// the factors 1 - sigmoid(z) of all keys after it, so that its weight is exp(z[x] - sum over y >= x of log(1 + exp(z[y]))):
// a scan of the scores in reverse, in the stream that makes them.
//
//   treadle run examples/attention_stick_breaking.mlir --verbose
//   treadle explain examples/attention_stick_breaking.mlir --size h=16 --size q=4096 --size x=4096 --derivation

!Q = tensor<?x?x64xf16, #diagram.array<[h, q, d]>>
!K = tensor<?x?x64xf16, #diagram.array<[h, x, d]>>
!V = tensor<?x?x64xf16, #diagram.array<[h, x, v]>>
!O = tensor<?x?x64xf32, #diagram.array<[h, q, v]>>
!O16 = tensor<?x?x64xf16, #diagram.array<[h, q, v]>>
!S = tensor<?x?x?xf32, #diagram.array<[h, q, x]>>
!S16 = tensor<?x?x?xf16, #diagram.array<[h, q, x]>>

func.func @attention_stick_breaking(%Q: !Q, %K: !K, %V: !V) -> !O16
    attributes {sizes = #diagram.sizes<h = 4, q = 333, x = 333>} {
  %S = diagram.contract %Q, %K over [d] accumulate f32 : !Q, !K -> !S
  %seen = diagram.where %S if "x < q" : !S
  %z = diagram.map (%s = %seen : !S) -> !S {
    %scale = arith.constant 0.125 : f32
    %r = arith.mulf %s, %scale : f32
    diagram.yield %r : f32
  }
  %l = diagram.map (%s = %z : !S) -> !S {
    %e = math.exp %s : f32
    %r = math.log1p %e : f32
    diagram.yield %r : f32
  }
  %C = diagram.scan add %l over x reverse : !S -> !S
  %P = diagram.map (%s = %z : !S, %c = %C : !S) -> !S {
    %t = arith.subf %s, %c : f32
    %e = math.exp %t : f32
    diagram.yield %e : f32
  }
  %P16 = diagram.cast %P : !S -> !S16
  %O = diagram.contract %P16, %V over [x] accumulate f32 : !S16, !V -> !O
  %O16 = diagram.cast %O : !O -> !O16
  func.return %O16 : !O16
}
