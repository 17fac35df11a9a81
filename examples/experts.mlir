// Products whose weights data choose: the rows r of each block g are multiplied by the weights of one expert, as after
// sorting tokens by expert and filling up blocks. A block of an expert that there is not gives zeros.
//
//   treadle run examples/experts.mlir --size g=10 --size n=100

!X = tensor<?x?x?xf16, #diagram.array<[g, r, k]>>
!W = tensor<?x?x?xf16, #diagram.array<[i, k, n]>>
!expert = tensor<?xi32, #diagram.array<[g]>>
!Wg = tensor<?x?x?xf16, #diagram.array<[g, k, n]>>
!Y = tensor<?x?x?xf32, #diagram.array<[g, r, n]>>
!Z = tensor<?x?x?xf16, #diagram.array<[g, r, n]>>

func.func @experts(%X: !X, %W: !W, %expert: !expert {diagram.up_to = "i"}) -> !Z
    attributes {sizes = #diagram.sizes<g = 6, r = 64, k = 96, n = 72, i = 5>} {
  %Wg = diagram.read %W at "expert[g], k, n" padded with (expert = %expert : !expert) : !W -> !Wg
  %Y = diagram.contract %X, %Wg over [k] accumulate f32 : !X, !Wg -> !Y
  %Z = diagram.cast %Y : !Y -> !Z
  func.return %Z : !Z
}
