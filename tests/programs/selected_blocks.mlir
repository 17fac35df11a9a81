// Attention of each query to blocks of 64 keys that data choose for it, as in native sparse attention: `blocks` names,
// for a query and a head of keys, which blocks its heads meet. The rows of a tile are the `g` heads that share keys, and
// its columns the keys of a block, read where they are. A block may hold keys behind the query: the condition asks for
// the position that was chosen. An entry that is no block (-1) finds zeros, which the condition must leave out.

!Q = tensor<?x?x16x128xf16, #diagram.array<[t, h, g, d]>>
!K = tensor<?x?x128xf16, #diagram.array<[s, h, d]>>
!V = tensor<?x?x128xf16, #diagram.array<[s, h, e]>>
!blocks = tensor<?x?x?xi32, #diagram.array<[t, h, n]>>
!Ky = tensor<?x?x?x128xf16, #diagram.array<[t, h, y, d]>>
!Vy = tensor<?x?x?x128xf16, #diagram.array<[t, h, y, e]>>
!B = tensor<?x?x?xi32, #diagram.array<[t, h, y]>>
!S = tensor<?x?x16x?xf32, #diagram.array<[t, h, g, y]>>
!P = tensor<?x?x16x?xf16, #diagram.array<[t, h, g, y]>>
!A = tensor<?x?x16x128xf32, #diagram.array<[t, h, g, e]>>
!O = tensor<?x?x16x128xf16, #diagram.array<[t, h, g, e]>>

func.func @selected_blocks(%Q: !Q, %K: !K, %V: !V, %blocks: !blocks) -> !O
    attributes {sizes = #diagram.sizes<t = 37, h = 2, s = 300, n = 3>} {
  %Ky = diagram.read %K at "64 * blocks[t, h, y // 64] + y % 64, h, d" padded with (blocks = %blocks : !blocks)
      : !K -> !Ky
  %Vy = diagram.read %V at "64 * blocks[t, h, y // 64] + y % 64, h, e" padded with (blocks = %blocks : !blocks)
      : !V -> !Vy
  %S = diagram.contract %Q, %Ky over [d] accumulate f32 : !Q, !Ky -> !S
  %T = diagram.map (%s = %S : !S) -> !S {
    %scale = arith.constant 0.08838834764 : f32
    %t = arith.mulf %s, %scale : f32
    diagram.yield %t : f32
  }
  %B = diagram.read %blocks at "t, h, y // 64" padded : !blocks -> !B
  %W = diagram.where %T if "0 <= b[t, h, y] and 64 * b[t, h, y] + y % 64 <= t" with (b = %B : !B) : !S
  %P = diagram.apply @softmax(%W) over [y] : (!S) -> !S
  %P16 = diagram.cast %P : !S -> !P
  %A = diagram.contract %P16, %Vy over [y] accumulate f32 : !P, !Vy -> !A
  %O = diagram.cast %A : !A -> !O
  func.return %O : !O
}
