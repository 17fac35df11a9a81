// Attention to a cache in pages: keys and values of a sequence lie in pages of 16 positions, anywhere in one array that
// all sequences share, and `table` names them in order. `x // 16` says which entry of the table a key's page has, and
// `x % 16` where it lies in the page. Nothing is copied into order: the kernel reads each page where it is. `length`
// says how many keys a sequence has, and `past` how many of them lie before its first query: 0 where all are new
// (prefill), all but one for one query (decoding, `--size q=1`). Entries of the table behind a length may be anything.
//
//   treadle run examples/attention_paged.mlir --size q=1 --size m=40

!Q = tensor<?x?x?x?x64xf16, #diagram.array<[b, h, g, q, d]>>
!K_pages = tensor<?x16x?x64xf16, #diagram.array<[p, s, h, d]>>
!V_pages = tensor<?x16x?x64xf16, #diagram.array<[p, s, h, e]>>
!table = tensor<?x?xi32, #diagram.array<[b, m]>>
!n = tensor<?xi32, #diagram.array<[b]>>
!K = tensor<?x?x?x64xf16, #diagram.array<[b, x, h, d]>>
!V = tensor<?x?x?x64xf16, #diagram.array<[b, x, h, e]>>
!S = tensor<?x?x?x?x?xf32, #diagram.array<[b, h, g, q, x]>>
!P = tensor<?x?x?x?x?xf16, #diagram.array<[b, h, g, q, x]>>
!A = tensor<?x?x?x?x64xf32, #diagram.array<[b, h, g, q, e]>>
!O = tensor<?x?x?x?x64xf16, #diagram.array<[b, h, g, q, e]>>

func.func @attention_paged(
    %Q: !Q, %K_pages: !K_pages, %V_pages: !V_pages, %table: !table {diagram.up_to = "p"},
    %length: !n {diagram.up_to = "x"}, %past: !n {diagram.up_to = "x"}) -> !O
    attributes {sizes = #diagram.sizes<b = 2, q = 20, h = 2, g = 2, p = 40, m = 13>} {
  %K = diagram.read %K_pages at "table[b, x // 16], x % 16, h, d" padded with (table = %table : !table)
      : !K_pages -> !K
  %V = diagram.read %V_pages at "table[b, x // 16], x % 16, h, e" padded with (table = %table : !table)
      : !V_pages -> !V
  %S = diagram.contract %Q, %K over [d] accumulate f32 : !Q, !K -> !S
  %T = diagram.map (%s = %S : !S) -> !S {
    %scale = arith.constant 0.125 : f32
    %t = arith.mulf %s, %scale : f32
    diagram.yield %t : f32
  }
  %W = diagram.where %T if "x < length[b] and x <= q + past[b]" with (length = %length : !n, past = %past : !n) : !S
  %P = diagram.apply @softmax(%W) over [x] : (!S) -> !S
  %P16 = diagram.cast %P : !S -> !P
  %A = diagram.contract %P16, %V over [x] accumulate f32 : !P, !V -> !A
  %O = diagram.cast %A : !A -> !O
  func.return %O : !O
}
