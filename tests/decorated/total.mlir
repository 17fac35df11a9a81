// The sum of a vector, decorated by hand: nothing to group.

!X = tensor<?xf32, #diagram.array<[n]>>
!Xd = tensor<?xf32, #diagram.array<[n], level = device>>
!s = tensor<f32, #diagram.array<[]>>
!sr = tensor<f32, #diagram.array<[], level = register>>

func.func @total(%X: !X) -> !s attributes {sizes = #diagram.sizes<n = 5000>} {
  %s = hierarchy.kernel @total (%Xd = %X : !X as !Xd) -> (!s) schedule #hierarchy.schedule<stream = [n = ?]> {
    %s = diagram.reduce add %Xd over [n] : !Xd -> !sr
    hierarchy.yield %s : !sr
  }
  func.return %s : !s
}
