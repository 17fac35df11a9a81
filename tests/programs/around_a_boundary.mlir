// An operation of another dialect between diagram operations: fusion must not reach around it.

!X = tensor<?xf32, #diagram.array<[i]>>

func.func private @opaque(!X) -> !X

func.func @around_a_boundary(%X: !X) -> !X attributes {sizes = #diagram.sizes<i = 37>} {
  %A = diagram.map (%x = %X : !X) -> !X {
    %y = math.sin %x : f32
    diagram.yield %y : f32
  }
  %B = func.call @opaque(%A) : (!X) -> !X
  %C = diagram.map (%a = %A : !X, %b = %B : !X) -> !X {
    %y = arith.addf %a, %b : f32
    diagram.yield %y : f32
  }
  func.return %C : !X
}
