// A product with two free axes on either side and a batch, decorated by hand.

!A = tensor<?x?x?x64xf16, #diagram.array<[b, i, j, k]>>
!B = tensor<?x64x?x?xf16, #diagram.array<[b, k, n, o]>>
!C = tensor<?x?x?x?x?xf32, #diagram.array<[b, i, j, n, o]>>
!Ad = tensor<?x?x?x64xf16, #diagram.array<[b, i, j, k], level = device>>
!Bd = tensor<?x64x?x?xf16, #diagram.array<[b, k, n, o], level = device>>
!Cr = tensor<?x?x?x?x?xf32, #diagram.array<[b, i, j, n, o], level = register>>

func.func @product(%A: !A, %B: !B) -> !C attributes {sizes = #diagram.sizes<b = 2, i = 3, j = 70, n = 5, o = 90>} {
  %C = hierarchy.kernel @product (%Ad = %A : !A as !Ad, %Bd = %B : !B as !Bd) -> (!C)
      schedule #hierarchy.schedule<group = [b = ?, i = ?, j = ?, n = ?, o = ?], whole = [k = 64]> {
    %C = diagram.contract %Ad, %Bd over [k] accumulate f32 : !Ad, !Bd -> !Cr
    hierarchy.yield %C : !Cr
  }
  func.return %C : !C
}
