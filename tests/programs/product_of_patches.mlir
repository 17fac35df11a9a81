// Patches of images as a product: what a patch sums over lies in rows of the image, apart from each other.

!X = tensor<?x12x9x3xf16, #diagram.array<[b, h, w, c]>>
!V = tensor<?x4x3x3x3x3xf16, #diagram.array<[b, x, i, y, j, c]>>
!W = tensor<3x3x3x20xf16, #diagram.array<[i, j, c, o]>>
!O = tensor<?x4x3x20xf32, #diagram.array<[b, x, y, o]>>

func.func @product_of_patches(%X: !X, %W: !W) -> !O attributes {sizes = #diagram.sizes<b = 3>} {
  %V = diagram.read %X at "b, 3 * x + i, 3 * y + j, c" : !X -> !V
  %O = diagram.contract %V, %W over [i, j, c] accumulate f32 : !V, !W -> !O
  func.return %O : !O
}
