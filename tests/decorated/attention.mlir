// Attention over batches and heads, decorated by hand: the division by the sum stands behind the second
// product, so that one stream suffices.

!Q = tensor<?x?x?x64xf16, #diagram.array<[b, h, q, d]>>
!K = tensor<?x?x?x64xf16, #diagram.array<[b, h, x, d]>>
!V = tensor<?x?x?x64xf16, #diagram.array<[b, h, x, e]>>
!O = tensor<?x?x?x64xf16, #diagram.array<[b, h, q, e]>>
!Qd = tensor<?x?x?x64xf16, #diagram.array<[b, h, q, d], level = device>>
!Kd = tensor<?x?x?x64xf16, #diagram.array<[b, h, x, d], level = device>>
!Vd = tensor<?x?x?x64xf16, #diagram.array<[b, h, x, e], level = device>>
!S = tensor<?x?x?x?xf32, #diagram.array<[b, h, q, x], level = register>>
!P = tensor<?x?x?x?xf16, #diagram.array<[b, h, q, x], level = register>>
!m = tensor<?x?x?xf32, #diagram.array<[b, h, q], level = register>>
!A = tensor<?x?x?x64xf32, #diagram.array<[b, h, q, e], level = register>>
!Or = tensor<?x?x?x64xf16, #diagram.array<[b, h, q, e], level = register>>

func.func @attention(%Q: !Q, %K: !K, %V: !V) -> !O
    attributes {sizes = #diagram.sizes<b = 2, h = 3, q = 200, x = 333>} {
  %O = hierarchy.kernel @attention (%Qd = %Q : !Q as !Qd, %Kd = %K : !K as !Kd, %Vd = %V : !V as !Vd) -> (!O)
      schedule #hierarchy.schedule<group = [b = ?, h = ?, q = ?], stream = [x = ?], whole = [d = 64, e = 64]> {
    %S = diagram.contract %Qd, %Kd over [d] accumulate f32 : !Qd, !Kd -> !S
    %T = diagram.map (%s = %S : !S) -> !S {
      %scale = arith.constant 0.125 : f32
      %t = arith.mulf %s, %scale : f32
      diagram.yield %t : f32
    }
    %m = diagram.reduce max %T over [x] : !S -> !m
    %E = diagram.map (%t = %T : !S, %top = %m : !m) -> !S {
      %shifted = arith.subf %t, %top : f32
      %exp = math.exp %shifted : f32
      diagram.yield %exp : f32
    }
    %l = diagram.reduce add %E over [x] : !S -> !m
    %P = diagram.cast %E : !S -> !P
    %A = diagram.contract %P, %Vd over [x] accumulate f32 : !P, !Vd -> !A
    %B = diagram.map (%a = %A : !A, %sum = %l : !m) -> !A {
      %share = arith.divf %a, %sum : f32
      diagram.yield %share : f32
    }
    %Or = diagram.cast %B : !A -> !Or
    hierarchy.yield %Or : !Or
  }
  func.return %O : !O
}
