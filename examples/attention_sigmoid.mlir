// Sigmoid attention: each score becomes a weight on its own, 1 / (1 + exp(-s + log x)), and no row needs a maximum or
// a sum. The state is the output alone. The bias, the logarithm of the number of keys, is an argument.
//
//   treadle run examples/attention_sigmoid.mlir --size q=1000 --size x=4096

!Q = tensor<?x?x?x64xf16, #diagram.array<[b, h, q, d]>>
!K = tensor<?x?x?x64xf16, #diagram.array<[b, h, x, d]>>
!V = tensor<?x?x?x64xf16, #diagram.array<[b, h, x, e]>>
!S = tensor<?x?x?x?xf32, #diagram.array<[b, h, q, x]>>
!P = tensor<?x?x?x?xf16, #diagram.array<[b, h, q, x]>>
!A = tensor<?x?x?x64xf32, #diagram.array<[b, h, q, e]>>
!O = tensor<?x?x?x64xf16, #diagram.array<[b, h, q, e]>>

func.func @attention_sigmoid(%Q: !Q, %K: !K, %V: !V, %log_keys: f32) -> !O
    attributes {sizes = #diagram.sizes<b = 2, h = 3, q = 200, x = 333>} {
  %S = diagram.contract %Q, %K over [d] accumulate f32 : !Q, !K -> !S
  %P = diagram.map (%s = %S : !S, %n = %log_keys : f32) -> !S {
    %scale = arith.constant 0.125 : f32
    %one = arith.constant 1.0 : f32
    %scaled = arith.mulf %s, %scale : f32
    %negative = arith.subf %n, %scaled : f32
    %exp = math.exp %negative : f32
    %divisor = arith.addf %one, %exp : f32
    %p = arith.divf %one, %divisor : f32
    diagram.yield %p : f32
  }
  %P16 = diagram.cast %P : !S -> !P
  %A = diagram.contract %P16, %V over [x] accumulate f32 : !P, !V -> !A
  %O = diagram.cast %A : !A -> !O
  func.return %O : !O
}
