// Sorting a row needs all of it: there is no law for it, and it is refused with that reason.

!X = tensor<?x?xf32, #diagram.array<[t, x]>>

func.func @sort(%X: !X) -> !X attributes {sizes = #diagram.sizes<t = 5, x = 33>} {
  %sorted = diagram.apply @sort(%X) over [x] : (!X) -> !X
  func.return %sorted : !X
}
