// What is written as a power of 2 keeps the operand that leaves elements out, though the body does not read it.

!S = tensor<?x?xf32, #diagram.array<[q, x]>>
!s = tensor<?xf32, #diagram.array<[q]>>
func.func @condition_that_a_power_does_not_read(%S: !S) -> !s attributes {sizes = #diagram.sizes<q = 3, x = 11>} {
  %W = diagram.where %S if "x < 4" : !S
  %M = diagram.map (%a = %S : !S, %w = %W : !S) -> !S {
    %d = math.exp %a : f32
    diagram.yield %d : f32
  }
  %s = diagram.reduce add %M over [x] : !S -> !s
  func.return %s : !s
}
