// What passes a condition is copied along e, so that at a border each lane holds whole rows of it; elsewhere the lanes
// share a row, and would have kept their parts of the sum apart until the end.

!X = tensor<8x?xf32, #diagram.array<[d, a]>>
!Y = tensor<?x64x8xf32, #diagram.array<[a, e, d]>>

func.func @f(%X: !X, %s: tensor<8xi32, #diagram.array<[d]>> {diagram.up_to = "d"}, %t: tensor<?xi32, #diagram.array<[a]>> {diagram.up_to = "d", diagram.ascending})
    -> (!Y, tensor<8xf32, #diagram.array<[d]>>, tensor<?xf32, #diagram.array<[a]>>) attributes {sizes = #diagram.sizes<a = 33>} {
  %w = diagram.where %X if "(a >= d + 1) or s[d] == t[a]" with (s = %s : tensor<8xi32, #diagram.array<[d]>>, t = %t : tensor<?xi32, #diagram.array<[a]>>) : !X
  %sum = diagram.reduce add %w over [a] : !X -> tensor<8xf32, #diagram.array<[d]>>
  %product = diagram.contract %X, %w over [d] accumulate f32 : !X, !X -> tensor<?xf32, #diagram.array<[a]>>
  %copy = diagram.map (%a = %w : !X) -> !Y {
    diagram.yield %a : f32
  }
  func.return %copy, %sum, %product : !Y, tensor<8xf32, #diagram.array<[d]>>, tensor<?xf32, #diagram.array<[a]>>
}
