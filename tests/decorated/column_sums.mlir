// Sums over the axis that is not contiguous, decorated by hand.

!X = tensor<?x?xf32, #diagram.array<[m, n]>>
!Xd = tensor<?x?xf32, #diagram.array<[m, n], level = device>>
!s = tensor<?xf32, #diagram.array<[n]>>
!sr = tensor<?xf32, #diagram.array<[n], level = register>>

func.func @sums(%X: !X) -> !s attributes {sizes = #diagram.sizes<m = 1000, n = 4096>} {
  %s = hierarchy.kernel @sums (%Xd = %X : !X as !Xd) -> (!s)
      schedule #hierarchy.schedule<group = [n = ?], stream = [m = ?]> {
    %s = diagram.reduce add %Xd over [m] : !Xd -> !sr
    hierarchy.yield %s : !sr
  }
  func.return %s : !s
}
