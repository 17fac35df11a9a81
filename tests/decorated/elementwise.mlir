// A map of every element, decorated by hand.

!X = tensor<?x?xf16, #diagram.array<[m, n]>>
!Xd = tensor<?x?xf16, #diagram.array<[m, n], level = device>>
!Y = tensor<?x?xf16, #diagram.array<[m, n], level = register>>

func.func @negate(%X: !X) -> !X attributes {sizes = #diagram.sizes<m = 1000, n = 4096>} {
  %Y = hierarchy.kernel @negate (%Xd = %X : !X as !Xd) -> (!X)
      schedule #hierarchy.schedule<group = [m = ?, n = ?]> {
    %Y = diagram.map (%x = %Xd : !Xd) -> !Y {
      %y = arith.negf %x : f16
      diagram.yield %y : f16
    }
    hierarchy.yield %Y : !Y
  }
  func.return %Y : !X
}
