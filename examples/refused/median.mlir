// What cannot be streamed is refused with the reason: no state of fixed size goes on from a part of a row to its median,
// so there is no law for it.

!X = tensor<?x?xf32, #diagram.array<[t, x]>>
!r = tensor<?xf32, #diagram.array<[t]>>

func.func @median(%X: !X) -> !r attributes {sizes = #diagram.sizes<t = 5, x = 33>} {
  %middle = diagram.apply @median(%X) over [x] : (!X) -> !r
  func.return %middle : !r
}
