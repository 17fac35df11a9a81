// Differential attention, causal: of each head two attentions to the same values, of which the second, times a number of
// the head, is taken off the first. Where that is faster each is a kernel, and the second one reads what the first made.
//
//   treadle run examples/attention_differential.mlir --size q=1000 --size x=1000

!Q = tensor<?x?x?x64xf16, #diagram.array<[b, h, q, d]>>
!K = tensor<?x?x?x64xf16, #diagram.array<[b, h, x, d]>>
!V = tensor<?x?x?x128xf16, #diagram.array<[b, h, x, e]>>
!lambda = tensor<?xf32, #diagram.array<[h]>>
!S = tensor<?x?x?x?xf32, #diagram.array<[b, h, q, x]>>
!P = tensor<?x?x?x?xf16, #diagram.array<[b, h, q, x]>>
!A = tensor<?x?x?x128xf32, #diagram.array<[b, h, q, e]>>
!O = tensor<?x?x?x128xf16, #diagram.array<[b, h, q, e]>>

func.func @attention_differential(%Q1: !Q, %K1: !K, %Q2: !Q, %K2: !K, %V: !V, %lambda: !lambda) -> !O
    attributes {sizes = #diagram.sizes<b = 1, h = 2, q = 170, x = 170>} {
  %S1 = diagram.contract %Q1, %K1 over [d] accumulate f32 : !Q, !K -> !S
  %W1 = diagram.where %S1 if "x <= q" : !S
  %T1 = diagram.map (%s = %W1 : !S) -> !S {
    %scale = arith.constant 0.125 : f32
    %t = arith.mulf %s, %scale : f32
    diagram.yield %t : f32
  }
  %P1 = diagram.apply @softmax(%T1) over [x] : (!S) -> !S
  %S2 = diagram.contract %Q2, %K2 over [d] accumulate f32 : !Q, !K -> !S
  %W2 = diagram.where %S2 if "x <= q" : !S
  %T2 = diagram.map (%s = %W2 : !S) -> !S {
    %scale = arith.constant 0.125 : f32
    %t = arith.mulf %s, %scale : f32
    diagram.yield %t : f32
  }
  %P2 = diagram.apply @softmax(%T2) over [x] : (!S) -> !S
  %P1_16 = diagram.cast %P1 : !S -> !P
  %A1 = diagram.contract %P1_16, %V over [x] accumulate f32 : !P, !V -> !A
  %P2_16 = diagram.cast %P2 : !S -> !P
  %A2 = diagram.contract %P2_16, %V over [x] accumulate f32 : !P, !V -> !A
  %A = diagram.map (%a = %A1 : !A, %r = %A2 : !A, %l = %lambda : !lambda) -> !A {
    %less = arith.mulf %l, %r : f32
    %d = arith.subf %a, %less : f32
    diagram.yield %d : f32
  }
  %O = diagram.cast %A : !A -> !O
  func.return %O : !O
}
