// Attention with dropout, as it is trained: of the shares, each is left out with the probability 0.1, and the others are
// divided by 0.9. Which are left out is told by random bits of a seed, a head and a position; a gradient makes the same
// bits anew, where others save a mask.
//
//   treadle run examples/attention_dropout.mlir --size h=2 --size q=200 --size x=300
//   treadle differentiate examples/attention_dropout.mlir --of Q,K,V

!Q = tensor<?x?x64xf16, #diagram.array<[h, q, d]>>
!K = tensor<?x?x64xf16, #diagram.array<[h, x, d]>>
!V = tensor<?x?x64xf16, #diagram.array<[h, x, e]>>
!S = tensor<?x?x?xf32, #diagram.array<[h, q, x]>>
!P = tensor<?x?x?xf16, #diagram.array<[h, q, x]>>
!O = tensor<?x?x64xf32, #diagram.array<[h, q, e]>>
!R = tensor<?x?x64xf16, #diagram.array<[h, q, e]>>
!seed = tensor<i32, #diagram.array<[]>>
!h = tensor<?xi32, #diagram.array<[h]>>
!q = tensor<?xi32, #diagram.array<[q]>>
!x = tensor<?xi32, #diagram.array<[x]>>

func.func @attention_dropout(%Q: !Q, %K: !K, %V: !V, %seed: !seed) -> !R
    attributes {sizes = #diagram.sizes<h = 2, q = 70, x = 96>} {
  %S = diagram.contract %Q, %K over [d] accumulate f32 : !Q, !K -> !S
  %scaled = diagram.map (%s = %S : !S) -> !S {
    %scale = arith.constant 0.125 : f32
    %t = arith.mulf %s, %scale : f32
    diagram.yield %t : f32
  }
  %shares = diagram.apply @softmax(%scaled) over [x] : (!S) -> !S
  %head = diagram.index -> !h
  %row = diagram.index -> !q
  %column = diagram.index -> !x
  %key = diagram.map (%seed_1 = %seed : !seed, %at = %head : !h) -> !h {
    %zero = arith.constant 0 : i32
    %word = diagram.random 32 of %seed_1 at %zero, %at : i32
    diagram.yield %word : i32
  }
  %P = diagram.map (%share = %shares : !S, %word = %key : !h, %i = %row : !q, %j = %column : !x) -> !P {
    %dropped = arith.constant 6554 : i32  // of 65536
    %scale = arith.constant 1.11111867 : f32
    %nothing = arith.constant 0.0 : f32
    %bits = diagram.random 16 of %word at %i, %j : i32
    %is_dropped = arith.cmpi slt, %bits, %dropped : i32
    %rest = arith.mulf %share, %scale : f32
    %left = arith.select %is_dropped, %nothing, %rest : f32
    %p = arith.truncf %left : f32 to f16
    diagram.yield %p : f16
  }
  %O = diagram.contract %P, %V over [x] accumulate f32 : !P, !V -> !O
  %R = diagram.cast %O : !O -> !R
  func.return %R : !R
}
