// A matrix product, decorated by hand as `tiling` leaves it: sizes are open.

!A = tensor<?x?xf16, #diagram.array<[a, b]>>
!B = tensor<?x?xf16, #diagram.array<[b, c]>>
!Ad = tensor<?x?xf16, #diagram.array<[a, b], level = device>>
!Bd = tensor<?x?xf16, #diagram.array<[b, c], level = device>>
!C = tensor<?x?xf32, #diagram.array<[a, c]>>
!C16 = tensor<?x?xf16, #diagram.array<[a, c]>>
!Cr = tensor<?x?xf32, #diagram.array<[a, c], level = register>>
!C16r = tensor<?x?xf16, #diagram.array<[a, c], level = register>>
func.func @matmul(%A: !A, %B: !B) -> !C16 attributes {sizes = #diagram.sizes<a = 4096, b = 4096, c = 4096>} {
  %O = hierarchy.kernel @matmul (%x = %A : !A as !Ad, %y = %B : !B as !Bd) -> (!C16)
      schedule #hierarchy.schedule<group = [a = ?, c = ?], stream = [b = ?]> {
    %C = diagram.contract %x, %y over [b] accumulate f32 : !Ad, !Bd -> !Cr
    %D = diagram.cast %C : !Cr -> !C16r
    hierarchy.yield %D : !C16r
  }
  func.return %O : !C16
}
