// Linear attention with the feature map elu + 1: first M = f(K)^T V and z, the sum of f(K), a d x e matrix a head in
// place of scores; then O = f(Q) M / (f(Q) z). The keys are streamed once, whatever their number.
//
//   treadle run examples/linear_attention.mlir --size q=1000 --size x=4096

!Q = tensor<?x?x?x64xf16, #diagram.array<[b, h, q, d]>>
!K = tensor<?x?x?x64xf16, #diagram.array<[b, h, x, d]>>
!V = tensor<?x?x?x64xf16, #diagram.array<[b, h, x, e]>>
!FQ = tensor<?x?x?x64xf32, #diagram.array<[b, h, q, d]>>
!FK = tensor<?x?x?x64xf32, #diagram.array<[b, h, x, d]>>
!M = tensor<?x?x64x64xf32, #diagram.array<[b, h, d, e]>>
!M16 = tensor<?x?x64x64xf16, #diagram.array<[b, h, d, e]>>
!z = tensor<?x?x64xf32, #diagram.array<[b, h, d]>>
!r = tensor<?x?x?xf32, #diagram.array<[b, h, q]>>
!A = tensor<?x?x?x64xf32, #diagram.array<[b, h, q, e]>>
!O = tensor<?x?x?x64xf16, #diagram.array<[b, h, q, e]>>

func.func @linear_attention(%Q: !Q, %K: !K, %V: !V) -> !O
    attributes {sizes = #diagram.sizes<b = 2, h = 3, q = 200, x = 333>} {
  %FK = diagram.map (%k = %K : !K) -> !FK {
    %one = arith.constant 1.0 : f32
    %zero = arith.constant 0.0 : f32
    %wide = arith.extf %k : f16 to f32
    %above = arith.maximumf %wide, %zero : f32
    %below = arith.minimumf %wide, %zero : f32
    %exp = math.exp %below : f32
    %f = arith.addf %above, %exp : f32
    diagram.yield %f : f32
  }
  %FK16 = diagram.cast %FK : !FK -> !K
  %M = diagram.contract %FK16, %V over [x] accumulate f32 : !K, !V -> !M
  %M16 = diagram.cast %M : !M -> !M16
  %z = diagram.reduce add %FK over [x] : !FK -> !z
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
  %A = diagram.contract %FQ16, %M16 over [d] accumulate f32 : !Q, !M16 -> !A
  %n = diagram.contract %FQ, %z over [d] accumulate f32 : !FQ, !z -> !r
  %shares = diagram.map (%a = %A : !A, %l = %n : !r) -> !A {
    %o = arith.divf %a, %l : f32
    diagram.yield %o : f32
  }
  %O = diagram.cast %shares : !A -> !O
  func.return %O : !O
}
