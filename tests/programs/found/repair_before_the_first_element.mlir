// Before the first element the maximum is neutral, and the sum beside it leaps by more than a power can follow: nothing
// was added yet, and nothing may be multiplied by infinity.

!A = tensor<?x?xf32, #diagram.array<[i, x]>>
!r = tensor<?xf32, #diagram.array<[i]>>

func.func @repair_before_the_first_element(%A: !A) -> !r attributes {sizes = #diagram.sizes<i = 5, x = 700>} {
  %w = diagram.map (%a = %A : !A) -> !A {
    %c = math.cos %a : f32
    %two = arith.constant 2.0 : f32
    %above = arith.addf %c, %two : f32
    diagram.yield %above : f32
  }
  %t = diagram.reduce add %w over [x] : !A -> !r
  %s = diagram.map (%a = %w : !A, %b = %t : !r) -> !A {
    %y = arith.addf %a, %b : f32
    diagram.yield %y : f32
  }
  %m = diagram.reduce max %s over [x] : !A -> !r
  %e = diagram.map (%a = %s : !A, %b = %m : !r) -> !A {
    %d = arith.subf %a, %b : f32
    %y = math.exp %d : f32
    diagram.yield %y : f32
  }
  %l = diagram.reduce add %e over [x] : !A -> !r
  func.return %l : !r
}
