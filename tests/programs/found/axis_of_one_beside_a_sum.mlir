// Only a map has the axis `one`, so nothing feeds it; the product beside it sums over an axis of one element, too.
!a = tensor<?xf32, #diagram.array<[b]>>
!column = tensor<?x1xf32, #diagram.array<[b, one]>>
!w = tensor<1x?xf32, #diagram.array<[d, b]>>
!y = tensor<1xf32, #diagram.array<[d]>>
func.func @f(%A: !a, %W: !w, %Y: !y) -> !a attributes {sizes = #diagram.sizes<b = 37>} {
  %Z = diagram.contract %Y, %W over [d] accumulate f32 : !y, !w -> !a
  %P = diagram.where %A if "b >= 3" : !a
  %column = diagram.map (%p = %P : !a) -> !column {
    diagram.yield %p : f32
  }
  %filled = diagram.reduce add %column over [one] : !column -> !a
  %S = diagram.map (%z = %Z : !a, %f = %filled : !a) -> !a {
    %s = arith.addf %z, %f : f32
    diagram.yield %s : f32
  }
  func.return %S : !a
}
