// Halves of a product that are rotated: read at positions that are computed (by a quarter of an axis, so that there
// are two pairs of blocks), and chosen by position, with factors that some axes of the product lack.

!X = tensor<?x16xf16, #diagram.array<[t, i]>>
!W = tensor<16x3x2x4xf16, #diagram.array<[i, h, r, j]>>
!V = tensor<16x24xf16, #diagram.array<[i, d]>>
!P = tensor<?x3x2x4xf32, #diagram.array<[t, h, r, j]>>
!half = tensor<?x3x4xf32, #diagram.array<[t, h, j]>>
!f = tensor<?x2x4xf32, #diagram.array<[t, r, j]>>
!which = tensor<2xi32, #diagram.array<[r]>>
!Q = tensor<?x24xf32, #diagram.array<[t, d]>>
!at = tensor<24xi32, #diagram.array<[d]>>

func.func @rotated_product(%X: !X, %W: !W, %V: !V, %C: !f, %S: !f) -> (!P, !Q) attributes {sizes = #diagram.sizes<t = 5>} {
  %P = diagram.contract %X, %W over [i] accumulate f32 : !X, !W -> !P
  %first = diagram.read %P at "t, h, 0, j" : !P -> !half
  %second = diagram.read %P at "t, h, 1, j" : !P -> !half
  %which = diagram.index -> !which
  %Y = diagram.map (%p = %P : !P, %c = %C : !f, %s = %S : !f, %n = %which : !which, %a = %first : !half, %b = %second : !half) -> !P {
    %zero = arith.constant 0 : i32
    %is_first = arith.cmpi eq, %n, %zero : i32
    %negative = arith.negf %b : f32
    %turned = arith.select %is_first, %negative, %a : f32
    %0 = arith.mulf %p, %c : f32
    %1 = arith.mulf %turned, %s : f32
    %y = arith.addf %0, %1 : f32
    diagram.yield %y : f32
  }
  %Q = diagram.contract %X, %V over [i] accumulate f32 : !X, !V -> !Q
  %d = diagram.index -> !at
  %other = diagram.map (%p = %d : !at) -> !at {
    %length = arith.constant 6 : i32
    %one = arith.constant 1 : i32
    %zero = arith.constant 0 : i32
    %block = arith.floordivsi %p, %length : i32
    %odd = arith.andi %block, %one : i32
    %is_even = arith.cmpi eq, %odd, %zero : i32
    %after = arith.addi %p, %length : i32
    %before = arith.subi %p, %length : i32
    %at = arith.select %is_even, %after, %before : i32
    diagram.yield %at : i32
  }
  %R = diagram.read %Q at "t, other[d]" padded with (other = %other : !at) : !Q -> !Q
  %Z = diagram.map (%q = %Q : !Q, %r = %R : !Q) -> !Q {
    %z = arith.subf %q, %r : f32
    diagram.yield %z : f32
  }
  func.return %Y, %Z : !P, !Q
}
