// Products that are added up: a multiple of one that is known before a stream, one that is added when a stream is
// finished, and three over one axis.

!A = tensor<?x?xf32, #diagram.array<[m, k]>>
!B = tensor<?x?xf32, #diagram.array<[k, n]>>
!C = tensor<?x3xf32, #diagram.array<[m, r]>>
!D = tensor<3x?xf32, #diagram.array<[r, n]>>
!Y = tensor<?x?xf32, #diagram.array<[m, n]>>

func.func @added(%A: !A, %B: !B, %C: !C, %D: !D, %E: !A, %F: !B, %G: !D, %H: !B) -> (!Y, !Y, !Y)
    attributes {sizes = #diagram.sizes<m = 6, k = 13, n = 7>} {
  %base = diagram.contract %A, %B over [k] accumulate f32 : !A, !B -> !Y
  %up = diagram.contract %C, %D over [r] accumulate f32 : !C, !D -> !Y
  %before = diagram.map (%p = %base : !Y, %q = %up : !Y) -> !Y {
    %scale = arith.constant 3.0 : f32
    %scaled = arith.mulf %q, %scale : f32
    %s = arith.addf %p, %scaled : f32
    diagram.yield %s : f32
  }
  %other = diagram.contract %E, %B over [k] accumulate f32 : !A, !B -> !Y
  %more = diagram.contract %C, %G over [r] accumulate f32 : !C, !D -> !Y
  %after = diagram.map (%p = %other : !Y, %q = %more : !Y) -> !Y {
    %half = arith.constant 0.5 : f32
    %scaled = arith.mulf %p, %half : f32
    %s = arith.addf %scaled, %q : f32
    diagram.yield %s : f32
  }
  %x = diagram.contract %A, %F over [k] accumulate f32 : !A, !B -> !Y
  %y = diagram.contract %E, %F over [k] accumulate f32 : !A, !B -> !Y
  %z = diagram.contract %E, %H over [k] accumulate f32 : !A, !B -> !Y
  %together = diagram.map (%p = %x : !Y, %q = %y : !Y, %r = %z : !Y) -> !Y {
    %s = arith.addf %p, %q : f32
    %t = arith.addf %r, %s : f32
    diagram.yield %t : f32
  }
  func.return %before, %after, %together : !Y, !Y, !Y
}
