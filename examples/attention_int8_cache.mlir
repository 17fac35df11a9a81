// Attention over keys and values that are kept in 8 bits, with a scale for each head: half the bytes of f16. Both
// widen to f16 where they are multiplied, exactly; the scales go to the scores, and to what leaves.
//
//   treadle run examples/attention_int8_cache.mlir --size q=100 --size x=300

!Q = tensor<?x?x64xf16, #diagram.array<[h, q, d]>>
!K = tensor<?x?x64xi8, #diagram.array<[h, x, d]>>
!V = tensor<?x?x64xi8, #diagram.array<[h, x, e]>>
!K16 = tensor<?x?x64xf16, #diagram.array<[h, x, d]>>
!V16 = tensor<?x?x64xf16, #diagram.array<[h, x, e]>>
!s = tensor<?xf32, #diagram.array<[h]>>
!S = tensor<?x?x?xf32, #diagram.array<[h, q, x]>>
!P = tensor<?x?x?xf16, #diagram.array<[h, q, x]>>
!A = tensor<?x?x64xf32, #diagram.array<[h, q, e]>>
!O = tensor<?x?x64xf16, #diagram.array<[h, q, e]>>

func.func @attention_int8_cache(%Q: !Q, %K: !K, %k_scale: !s, %V: !V, %v_scale: !s) -> !O
    attributes {sizes = #diagram.sizes<h = 2, q = 70, x = 150>} {
  %K16 = diagram.cast %K : !K -> !K16
  %V16 = diagram.cast %V : !V -> !V16
  %R = diagram.contract %Q, %K16 over [d] accumulate f32 : !Q, !K16 -> !S
  %S = diagram.map (%r = %R : !S, %k = %k_scale : !s) -> !S {
    %a = arith.constant 0.125 : f32
    %b = arith.mulf %r, %a : f32
    %c = arith.mulf %b, %k : f32
    diagram.yield %c : f32
  }
  %P = diagram.apply @softmax(%S) over [x] : (!S) -> !S
  %P16 = diagram.cast %P : !S -> !P
  %A = diagram.contract %P16, %V16 over [x] accumulate f32 : !P, !V16 -> !A
  %B = diagram.map (%a = %A : !A, %v = %v_scale : !s) -> !A {
    %b = arith.mulf %a, %v : f32
    diagram.yield %b : f32
  }
  %O = diagram.cast %B : !A -> !O
  func.return %O : !O
}
