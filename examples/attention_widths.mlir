// Attention with keys 96 wide and values 32 wide: the two widths are two axes, d and e.
//
//   treadle run examples/attention_widths.mlir --size q=1000 --size x=4096

!Q = tensor<?x?x?x96xf16, #diagram.array<[b, h, q, d]>>
!K = tensor<?x?x?x96xf16, #diagram.array<[b, h, x, d]>>
!V = tensor<?x?x?x32xf16, #diagram.array<[b, h, x, e]>>
!S = tensor<?x?x?x?xf32, #diagram.array<[b, h, q, x]>>
!P = tensor<?x?x?x?xf16, #diagram.array<[b, h, q, x]>>
!A = tensor<?x?x?x32xf32, #diagram.array<[b, h, q, e]>>
!O = tensor<?x?x?x32xf16, #diagram.array<[b, h, q, e]>>

func.func @attention_widths(%Q: !Q, %K: !K, %V: !V) -> !O
    attributes {sizes = #diagram.sizes<b = 2, h = 3, q = 200, x = 333>} {
  %S = diagram.contract %Q, %K over [d] accumulate f32 : !Q, !K -> !S
  %T = diagram.map (%s = %S : !S) -> !S {
    %scale = arith.constant 0.10206207262 : f32
    %t = arith.mulf %s, %scale : f32
    diagram.yield %t : f32
  }
  %P = diagram.apply @softmax(%T) over [x] : (!S) -> !S
  %P16 = diagram.cast %P : !S -> !P
  %A = diagram.contract %P16, %V over [x] accumulate f32 : !P, !V -> !A
  %O = diagram.cast %A : !A -> !O
  func.return %O : !O
}
