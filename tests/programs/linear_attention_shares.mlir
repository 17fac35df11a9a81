// Causal linear attention with a feature map, shared by the sum of the weights: two sums of one product under an order.

!Q = tensor<?x?x64xf16, #diagram.array<[h, q, d]>>
!K = tensor<?x?x64xf16, #diagram.array<[h, x, d]>>
!V = tensor<?x?x64xf16, #diagram.array<[h, x, e]>>
!FQ = tensor<?x?x64xf32, #diagram.array<[h, q, d]>>
!FK = tensor<?x?x64xf32, #diagram.array<[h, x, d]>>
!S = tensor<?x?x?xf32, #diagram.array<[h, q, x]>>
!S16 = tensor<?x?x?xf16, #diagram.array<[h, q, x]>>
!r = tensor<?x?xf32, #diagram.array<[h, q]>>
!A = tensor<?x?x64xf32, #diagram.array<[h, q, e]>>
!O = tensor<?x?x64xf16, #diagram.array<[h, q, e]>>

func.func @linear_attention_shares(%Q: !Q, %K: !K, %V: !V) -> !O
    attributes {sizes = #diagram.sizes<h = 2, q = 40, x = 40>} {
  %FQ = diagram.map (%q = %Q : !Q) -> !FQ {
    %zero = arith.constant 0.0 : f32
    %wide = arith.extf %q : f16 to f32
    %above = arith.maximumf %wide, %zero : f32
    %below = arith.minimumf %wide, %zero : f32
    %exp = math.exp %below : f32
    %f = arith.addf %above, %exp : f32
    diagram.yield %f : f32
  }
  %FQ16 = diagram.cast %FQ : !FQ -> !Q
  %FK = diagram.map (%k = %K : !K) -> !FK {
    %zero = arith.constant 0.0 : f32
    %wide = arith.extf %k : f16 to f32
    %above = arith.maximumf %wide, %zero : f32
    %below = arith.minimumf %wide, %zero : f32
    %exp = math.exp %below : f32
    %f = arith.addf %above, %exp : f32
    diagram.yield %f : f32
  }
  %FK16 = diagram.cast %FK : !FK -> !K
  %S = diagram.contract %FQ16, %FK16 over [d] accumulate f32 : !Q, !K -> !S
  %L = diagram.where %S if "x <= q" : !S
  %n = diagram.reduce add %L over [x] : !S -> !r
  %L16 = diagram.cast %L : !S -> !S16
  %A = diagram.contract %L16, %V over [x] accumulate f32 : !S16, !V -> !A
  %shares = diagram.map (%a = %A : !A, %l = %n : !r) -> !A {
    %o = arith.divf %a, %l : f32
    diagram.yield %o : f32
  }
  %O = diagram.cast %shares : !A -> !O
  func.return %O : !O
}
