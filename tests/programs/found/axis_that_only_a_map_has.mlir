// A map may add an axis, which no buffer of the kernel has.
!S = tensor<3x13xf32, #diagram.array<[q, x]>>
!Y = tensor<3x13x5xf32, #diagram.array<[q, x, y]>>
!s = tensor<3xf32, #diagram.array<[q]>>

func.func @axis_that_only_a_map_has(%S: !S) -> !s {
  %M = diagram.map (%a = %S : !S) -> !Y {
    %d = math.tanh %a : f32
    diagram.yield %d : f32
  }
  %s = diagram.reduce add %M over [x, y] : !Y -> !s
  func.return %s : !s
}
