// Retention: causal linear attention in which each head forgets at a rate of its own, by the distance of two positions:
// the weight of x for q is exp(-rate (q - x)). A distance is a difference of positions, so the power is told from a
// reference in each chunk, as in state_space.mlir.
//
//   treadle run examples/retention.mlir --verbose
//   treadle explain examples/retention.mlir --size h=8 --size q=65536 --size x=65536 --derivation

!Q = tensor<?x?x64xf16, #diagram.array<[h, q, d]>>
!K = tensor<?x?x64xf16, #diagram.array<[h, x, d]>>
!V = tensor<?x?x64xf16, #diagram.array<[h, x, e]>>
!rate = tensor<?xf32, #diagram.array<[h]>>
!at_q = tensor<?xi32, #diagram.array<[q]>>
!at_x = tensor<?xi32, #diagram.array<[x]>>
!D = tensor<?x?x?xf32, #diagram.array<[h, q, x]>>
!S = tensor<?x?x?xf32, #diagram.array<[h, q, x]>>
!S16 = tensor<?x?x?xf16, #diagram.array<[h, q, x]>>
!A = tensor<?x?x64xf32, #diagram.array<[h, q, e]>>
!O = tensor<?x?x64xf16, #diagram.array<[h, q, e]>>

func.func @retention(%Q: !Q, %K: !K, %V: !V, %log_rate: !rate) -> !O
    attributes {sizes = #diagram.sizes<h = 4, q = 2048, x = 2048>} {
  %at_q = diagram.index -> !at_q
  %at_x = diagram.index -> !at_x
  %D = diagram.map (%i = %at_q : !at_q, %j = %at_x : !at_x, %r = %log_rate : !rate) -> !D {
    %back = arith.subi %j, %i : i32
    %distance = arith.sitofp %back : i32 to f32
    %rate = math.exp %r : f32
    %decay = arith.mulf %distance, %rate : f32
    %w = math.exp %decay : f32
    diagram.yield %w : f32
  }
  %S = diagram.contract %Q, %K over [d] accumulate f32 : !Q, !K -> !S
  %T = diagram.map (%s = %S : !S, %w = %D : !D) -> !S {
    %t = arith.mulf %s, %w : f32
    diagram.yield %t : f32
  }
  %L = diagram.where %T if "x <= q" : !S
  %L16 = diagram.cast %L : !S -> !S16
  %A = diagram.contract %L16, %V over [x] accumulate f32 : !S16, !V -> !A
  %O = diagram.cast %A : !A -> !O
  func.return %O : !O
}
