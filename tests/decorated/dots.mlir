// Dot products of a batch, decorated by hand: no axis is free.

!v = tensor<?x?xf16, #diagram.array<[b, k]>>
!vd = tensor<?x?xf16, #diagram.array<[b, k], level = device>>
!y = tensor<?xf32, #diagram.array<[b]>>
!yr = tensor<?xf32, #diagram.array<[b], level = register>>

func.func @dots(%v: !v, %w: !v) -> !y attributes {sizes = #diagram.sizes<b = 64, k = 4096>} {
  %y = hierarchy.kernel @dots (%vd = %v : !v as !vd, %wd = %w : !v as !vd) -> (!y)
      schedule #hierarchy.schedule<group = [b = ?], stream = [k = ?]> {
    %y = diagram.contract %vd, %wd over [k] accumulate f32 : !vd, !vd -> !yr
    hierarchy.yield %y : !yr
  }
  func.return %y : !y
}
