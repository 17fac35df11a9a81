// A product over two axes that are known only at launch, of which no kernel can hold one: one after the other.

!X = tensor<?x?xf16, #diagram.array<[a, c]>>
!Y = tensor<?x?x?xf16, #diagram.array<[b, c, a]>>
!r = tensor<?xf16, #diagram.array<[b]>>

func.func @f(%X: !X, %Y: !Y) -> !r attributes {sizes = #diagram.sizes<a = 5, b = 17, c = 19>} {
  %R = diagram.contract %X, %Y over [a, c] accumulate f32 : !X, !Y -> !r
  func.return %R : !r
}
