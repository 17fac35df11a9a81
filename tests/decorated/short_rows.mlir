// A map of an array whose contiguous axis is short, decorated by hand.

!X = tensor<?x5xf32, #diagram.array<[m, n]>>
!Xd = tensor<?x5xf32, #diagram.array<[m, n], level = device>>
!Y = tensor<?x5xf32, #diagram.array<[m, n], level = register>>

func.func @negate(%X: !X) -> !X attributes {sizes = #diagram.sizes<m = 100000>} {
  %Y = hierarchy.kernel @negate (%Xd = %X : !X as !Xd) -> (!X)
      schedule #hierarchy.schedule<group = [m = ?, n = ?]> {
    %Y = diagram.map (%x = %Xd : !Xd) -> !Y {
      %y = arith.negf %x : f32
      diagram.yield %y : f32
    }
    hierarchy.yield %Y : !Y
  }
  func.return %Y : !X
}
