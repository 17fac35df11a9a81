// A softmax over a product that is a result: its row is streamed twice, with the product made anew.

!A = tensor<?x64xf16, #diagram.array<[m, k]>>
!B = tensor<64x?xf16, #diagram.array<[k, n]>>
!S = tensor<?x?xf32, #diagram.array<[m, n]>>

func.func @product_softmax(%A: !A, %B: !B) -> !S attributes {sizes = #diagram.sizes<m = 40, n = 100>} {
  %S = diagram.contract %A, %B over [k] accumulate f32 : !A, !B -> !S
  %P = diagram.apply @softmax(%S) over [n] : (!S) -> !S
  func.return %P : !S
}
