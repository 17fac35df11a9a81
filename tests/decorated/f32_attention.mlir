// Attention in f32, decorated by hand: CUDA cores multiply, and the computed operand goes through shared
// memory.

!Q = tensor<?x64xf32, #diagram.array<[q, d]>>
!K = tensor<?x64xf32, #diagram.array<[x, d]>>
!V = tensor<?x64xf32, #diagram.array<[x, e]>>
!O = tensor<?x64xf32, #diagram.array<[q, e]>>
!Qd = tensor<?x64xf32, #diagram.array<[q, d], level = device>>
!Kd = tensor<?x64xf32, #diagram.array<[x, d], level = device>>
!Vd = tensor<?x64xf32, #diagram.array<[x, e], level = device>>
!S = tensor<?x?xf32, #diagram.array<[q, x], level = register>>
!A = tensor<?x64xf32, #diagram.array<[q, e], level = register>>

func.func @attention(%Q: !Q, %K: !K, %V: !V) -> !O attributes {sizes = #diagram.sizes<q = 200, x = 333>} {
  %O = hierarchy.kernel @attention (%Qd = %Q : !Q as !Qd, %Kd = %K : !K as !Kd, %Vd = %V : !V as !Vd) -> (!O)
      schedule #hierarchy.schedule<group = [q = ?], stream = [x = ?], whole = [d = 64, e = 64]> {
    %S = diagram.contract %Qd, %Kd over [d] accumulate f32 : !Qd, !Kd -> !S
    %E = diagram.map (%t = %S : !S) -> !S {
      %exp = math.exp %t : f32
      diagram.yield %exp : f32
    }
    %A = diagram.contract %E, %Vd over [x] accumulate f32 : !S, !Vd -> !A
    hierarchy.yield %A : !A
  }
  func.return %O : !O
}
