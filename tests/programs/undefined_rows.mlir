// Some rows are nothing but -inf, and have no number in the formula; under the condition others have no element, and are 0.

!A = tensor<?x?xf32, #diagram.array<[i, x]>>
!r = tensor<?xf32, #diagram.array<[i]>>

func.func @undefined_rows(%A: !A, %B: !r) -> (!r, !r) attributes {sizes = #diagram.sizes<i = 13, x = 23>} {
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
  %w = diagram.where %s if "x + 4 <= i" : !A
  %n = diagram.reduce max %w over [x] : !A -> !r
  %f = diagram.map (%a = %w : !A, %b = %n : !r) -> !A {
    %d = arith.subf %a, %b : f32
    %y = math.exp %d : f32
    diagram.yield %y : f32
  }
  %k = diagram.reduce add %f over [x] : !A -> !r
  func.return %l, %k : !r, !r
}
