// The first two of each row, and their places, of numbers that are all below zero: nothing past the end of a row, where
// a part that is read has zeros, may come before them.

!S = tensor<?x?xf32, #diagram.array<[q, x]>>
!P = tensor<?x?xi32, #diagram.array<[q, x]>>
!r = tensor<?xf32, #diagram.array<[q]>>
!p = tensor<?xi32, #diagram.array<[q]>>
!x = tensor<?xi32, #diagram.array<[x]>>

func.func @orders_below_zero(%A: !S) -> (!r, !p, !r, !p) attributes {sizes = #diagram.sizes<q = 9, x = 37>} {
  %S = diagram.map (%a = %A : !S) -> !S {
    %none = arith.constant -1.0 : f32
    %size = math.absf %a : f32
    %s = arith.subf %none, %size : f32
    diagram.yield %s : f32
  }
  %at = diagram.index -> !x
  %first = diagram.reduce max %S over [x] : !S -> !r
  %is_first = diagram.map (%s = %S : !S, %m = %first : !r, %i = %at : !x) -> !P {
    %nowhere = arith.constant 2147483647 : i32
    %is = arith.cmpf oeq, %s, %m : f32
    %p = arith.select %is, %i, %nowhere : i32
    diagram.yield %p : i32
  }
  %place = diagram.reduce min %is_first over [x] : !P -> !p
  %left = diagram.map (%s = %S : !S, %i = %at : !x, %taken = %place : !p) -> !S {
    %none = arith.constant 0xFF800000 : f32
    %is = arith.cmpi eq, %i, %taken : i32
    %l = arith.select %is, %none, %s : f32
    diagram.yield %l : f32
  }
  %second = diagram.reduce max %left over [x] : !S -> !r
  %is_second = diagram.map (%s = %left : !S, %m = %second : !r, %i = %at : !x, %taken = %place : !p) -> !P {
    %nowhere = arith.constant 2147483647 : i32
    %is = arith.cmpf oeq, %s, %m : f32
    %is_left = arith.cmpi ne, %i, %taken : i32
    %both = arith.andi %is, %is_left : i1
    %p = arith.select %both, %i, %nowhere : i32
    diagram.yield %p : i32
  }
  %second_place = diagram.reduce min %is_second over [x] : !P -> !p
  func.return %first, %place, %second, %second_place : !r, !p, !r, !p
}
