// All that has an axis of a sum moves out of it: the sum that stays has that axis no more.

!X = tensor<?x7xf32, #diagram.array<[d, c]>>
!v = tensor<?xf32, #diagram.array<[d]>>
!r = tensor<7xf32, #diagram.array<[c]>>
func.func @f(%X: !X, %v: !v) -> (!r, !r) attributes {sizes = #diagram.sizes<d = 33>} {
  %a = diagram.contract %X, %v over [d] accumulate f32 : !X, !v -> !r
  %P = diagram.map (%x = %a : !r, %y = %v : !v) -> !X {
    %p = arith.mulf %x, %y : f32
    diagram.yield %p : f32
  }
  %b = diagram.contract %P, %P over [d] accumulate f32 : !X, !X -> !r
  %s = diagram.reduce add %P over [d] : !X -> !r
  func.return %b, %s : !r, !r
}
