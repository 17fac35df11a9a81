// Quotients by sums that may be zero, of which a mask of random bits leaves out most: all, it may be, of a row of zeros.

!A = tensor<?x?xf32, #diagram.array<[i, x]>>
!i = tensor<?xi32, #diagram.array<[i]>>
!x = tensor<?xi32, #diagram.array<[x]>>
!M = tensor<?x?xi32, #diagram.array<[i, x]>>
!r = tensor<?xf32, #diagram.array<[i]>>

func.func @drawn_quotients(%A: !A) -> !r attributes {sizes = #diagram.sizes<i = 40, x = 2>} {
  %P = diagram.map (%a = %A : !A) -> !A {
    %zero = arith.constant 0.0 : f32
    %y = arith.maximumf %a, %zero : f32
    diagram.yield %y : f32
  }
  %l = diagram.reduce add %P over [x] : !A -> !r
  %row = diagram.index -> !i
  %column = diagram.index -> !x
  %mask = diagram.map (%i = %row : !i, %j = %column : !x) -> !M {
    %zero = arith.constant 0 : i32
    %one = arith.constant 1 : i32
    %seed = arith.constant 7 : i32
    %most = arith.constant 6554 : i32
    %bits = diagram.random 16 of %seed at %i, %j : i32
    %is = arith.cmpi sge, %bits, %most : i32
    %kept = arith.select %is, %zero, %one : i32
    diagram.yield %kept : i32
  }
  %Q = diagram.map (%p = %P : !A, %b = %l : !r, %kept = %mask : !M) -> !A {
    %zero = arith.constant 0.0 : f32
    %nothing = arith.constant 0 : i32
    %is = arith.cmpi sgt, %kept, %nothing : i32
    %share = arith.divf %p, %b : f32
    %left = arith.select %is, %share, %zero : f32
    diagram.yield %left : f32
  }
  %y = diagram.reduce add %Q over [x] : !A -> !r
  func.return %y : !r
}
