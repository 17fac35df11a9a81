// A product for each index of the last axis: A and B come from the caller, and the result goes there.
!A = tensor<?x?x?xf16, #diagram.array<[i, k, c]>>
!B = tensor<?x?x?xf16, #diagram.array<[j, k, c]>>
!C = tensor<?x?x?xf32, #diagram.array<[i, j, c]>>
!C16 = tensor<?x?x?xf16, #diagram.array<[i, j, c]>>

func.func @channels_last(%A: !A, %B: !B) -> !C16
    attributes {sizes = #diagram.sizes<i = 9, k = 11, c = 5, j = 7>} {
  %C = diagram.contract %A, %B over [k] accumulate f32 : !A, !B -> !C
  %C16 = diagram.cast %C : !C -> !C16
  func.return %C16 : !C16
}
