// A vector times a matrix, decorated by hand: its one free axis is the columns'.

!v = tensor<?xf16, #diagram.array<[k]>>
!W = tensor<?x?xf16, #diagram.array<[k, n]>>
!vd = tensor<?xf16, #diagram.array<[k], level = device>>
!Wd = tensor<?x?xf16, #diagram.array<[k, n], level = device>>
!y = tensor<?xf32, #diagram.array<[n]>>
!yr = tensor<?xf32, #diagram.array<[n], level = register>>

func.func @matvec(%v: !v, %W: !W) -> !y attributes {sizes = #diagram.sizes<k = 4096, n = 4096>} {
  %y = hierarchy.kernel @matvec (%vd = %v : !v as !vd, %Wd = %W : !W as !Wd) -> (!y)
      schedule #hierarchy.schedule<group = [n = ?], stream = [k = ?]> {
    %y = diagram.contract %vd, %Wd over [k] accumulate f32 : !vd, !Wd -> !yr
    hierarchy.yield %y : !yr
  }
  func.return %y : !y
}
