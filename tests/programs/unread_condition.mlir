// A map that reads nothing of an operand still lacks its absent elements, whatever it is composed with.

!S = tensor<?x?xf32, #diagram.array<[q, x]>>
!q = tensor<?xf32, #diagram.array<[q]>>
func.func @unread_condition(%S: !S) -> !q attributes {sizes = #diagram.sizes<q = 9, x = 23>} {
  %W = diagram.where %S if "x <= q" : !S
  %one = diagram.map (%s = %W : !S) -> !S {
    %1 = arith.constant 1.0 : f32
    diagram.yield %1 : f32
  }
  %two = diagram.map (%s = %one : !S) -> !S {
    %y = arith.addf %s, %s : f32
    diagram.yield %y : f32
  }
  %count = diagram.reduce add %two over [x] : !S -> !q
  func.return %count : !q
}
