// A sum over a whole axis that is short, decorated by hand.

!X = tensor<?x?x64xf16, #diagram.array<[b, m, n]>>
!Xd = tensor<?x?x64xf16, #diagram.array<[b, m, n], level = device>>
!s = tensor<?x?xf32, #diagram.array<[b, m]>>
!sr = tensor<?x?xf32, #diagram.array<[b, m], level = register>>

func.func @sums(%X: !X) -> !s attributes {sizes = #diagram.sizes<b = 4, m = 5000>} {
  %s = hierarchy.kernel @sums (%Xd = %X : !X as !Xd) -> (!s)
      schedule #hierarchy.schedule<group = [b = ?, m = ?], whole = [n = 64]> {
    %s = diagram.reduce add %Xd over [n] : !Xd -> !sr
    hierarchy.yield %s : !sr
  }
  func.return %s : !s
}
