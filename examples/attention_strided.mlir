// Strided sparse attention (Child, Gray, Radford and Sutskever, "Generating long sequences with sparse transformers",
// arXiv 1904.10509): a query sees the 64 positions up to its own, and of those before every 256th. Tiles of keys in which
// no query of a block sees any are not visited; in the others a remainder is tested element by element.
//
//   treadle run examples/attention_strided.mlir --size q=1000 --size x=1000

!Q = tensor<?x?x?x64xf16, #diagram.array<[b, h, q, d]>>
!K = tensor<?x?x?x64xf16, #diagram.array<[b, h, x, d]>>
!V = tensor<?x?x?x64xf16, #diagram.array<[b, h, x, e]>>
!S = tensor<?x?x?x?xf32, #diagram.array<[b, h, q, x]>>
!P = tensor<?x?x?x?xf16, #diagram.array<[b, h, q, x]>>
!A = tensor<?x?x?x64xf32, #diagram.array<[b, h, q, e]>>
!O = tensor<?x?x?x64xf16, #diagram.array<[b, h, q, e]>>

func.func @attention_strided(%Q: !Q, %K: !K, %V: !V) -> !O
    attributes {sizes = #diagram.sizes<b = 2, h = 2, q = 600, x = 600>} {
  %S = diagram.contract %Q, %K over [d] accumulate f32 : !Q, !K -> !S
  %W = diagram.where %S if "x <= q and (q - x < 64 or (q - x) % 256 == 0)" : !S
  %T = diagram.map (%s = %W : !S) -> !S {
    %scale = arith.constant 0.125 : f32
    %t = arith.mulf %s, %scale : f32
    diagram.yield %t : f32
  }
  %P = diagram.apply @softmax(%T) over [x] : (!S) -> !S
  %P16 = diagram.cast %P : !S -> !P
  %A = diagram.contract %P16, %V over [x] accumulate f32 : !P, !V -> !A
  %O = diagram.cast %A : !A -> !O
  func.return %O : !O
}
