// Some rows are nothing but -inf, and have shares of 0, as the program chooses.

!A = tensor<?x?xf32, #diagram.array<[i, x]>>
!V = tensor<?x8xf32, #diagram.array<[x, e]>>
!r = tensor<?xf32, #diagram.array<[i]>>
!O = tensor<?x8xf32, #diagram.array<[i, e]>>

func.func @safe_rows(%A: !A, %B: !r, %V: !V) -> !O attributes {sizes = #diagram.sizes<i = 13, x = 23>} {
  %s = diagram.map (%a = %A : !A, %b = %B : !r) -> !A {
    %zero = arith.constant 0.0 : f32
    %no = arith.constant 0xFF800000 : f32
    %is = arith.cmpf ogt, %b, %zero : f32
    %y = arith.select %is, %no, %a : f32
    diagram.yield %y : f32
  }
  %m = diagram.reduce max %s over [x] : !A -> !r
  %e = diagram.map (%a = %s : !A, %b = %m : !r) -> !A {
    %d = arith.subf %a, %b : f32
    %y = math.exp %d : f32
    diagram.yield %y : f32
  }
  %l = diagram.reduce add %e over [x] : !A -> !r
  %P = diagram.map (%a = %e : !A, %b = %l : !r, %c = %m : !r) -> !A {
    %zero = arith.constant 0.0 : f32
    %bottom = arith.constant 0xFF800000 : f32
    %none = arith.cmpf oeq, %c, %bottom : f32
    %share = arith.divf %a, %b : f32
    %y = arith.select %none, %zero, %share : f32
    diagram.yield %y : f32
  }
  %O = diagram.contract %P, %V over [x] accumulate f32 : !A, !V -> !O
  func.return %O : !O
}
