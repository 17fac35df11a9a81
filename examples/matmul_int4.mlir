// Weights of 4 bits, two to a byte along k, with a scale for each 64 of them: a byte is read where it lies, for both of
// its halves, and becomes numbers in registers. The weight is the half less 8, times its scale. Activations are in f16.
//
//   treadle run examples/matmul_int4.mlir --size m=100 --size k=512 --size b=256 --size g=8

!X = tensor<?x?xf16, #diagram.array<[m, k]>>
!bytes = tensor<?x?xui8, #diagram.array<[b, n]>>
!scales = tensor<?x?xf16, #diagram.array<[g, n]>>
!byte = tensor<?x?xui8, #diagram.array<[k, n]>>
!number = tensor<?x?xi32, #diagram.array<[k, n]>>
!k = tensor<?xi32, #diagram.array<[k]>>
!W = tensor<?x?xf16, #diagram.array<[k, n]>>
!Y = tensor<?x?xf32, #diagram.array<[m, n]>>
!Z = tensor<?x?xf16, #diagram.array<[m, n]>>

func.func @matmul_int4(%X: !X, %packed: !bytes, %scales: !scales) -> !Z
    attributes {sizes = #diagram.sizes<m = 70, k = 320, b = 160, g = 5, n = 136>} {
  %byte = diagram.read %packed at "k // 2, n" padded : !bytes -> !byte
  %scale = diagram.read %scales at "k // 64, n" padded : !scales -> !W
  %number = diagram.cast %byte : !byte -> !number
  %at = diagram.index -> !k
  %W = diagram.map (%b = %number : !number, %s = %scale : !W, %k = %at : !k) -> !W {
    %one = arith.constant 1 : i32
    %two = arith.constant 2 : i32
    %eight = arith.constant 8 : i32
    %fifteen = arith.constant 15 : i32
    %odd = arith.andi %k, %one : i32
    %bits = arith.shli %odd, %two : i32
    %shifted = arith.shrui %b, %bits : i32
    %half = arith.andi %shifted, %fifteen : i32
    %centred = arith.subi %half, %eight : i32
    %w = arith.sitofp %centred : i32 to f16
    %scaled = arith.mulf %w, %s : f16
    diagram.yield %scaled : f16
  }
  %Y = diagram.contract %X, %W over [k] accumulate f32 : !X, !W -> !Y
  %Z = diagram.cast %Y : !Y -> !Z
  func.return %Z : !Z
}
